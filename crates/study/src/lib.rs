//! Studies: a plan file becomes points, the points are run in a fair order, the results are archived.
