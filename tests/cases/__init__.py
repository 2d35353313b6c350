"""Cases: problems that people met with these services and reported in public, each as one test.

A test is named after its report (P01, P03, …) and says in our own words what was met. It asserts what AWS does then,
and where labkit has an answer, that the answer holds. The parity suite asks the stand-in for one behaviour at a time;
these tests ask for what somebody wanted to do.
"""
