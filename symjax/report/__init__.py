"""From predictions to numbers, to a verdict in plain words, to a page.

`compare` computes, `summary`, `verdict`, `tables`, `convergence_table`, `csv_table` and
`latex` say what came out, `pictures` draws, and `write` puts all of it into one HTML
file.
"""

from symjax.report.bias import bias_finding
from symjax.report.columns import notes
from symjax.report.comparison import Comparison, Trace, compare
from symjax.report.convergence import convergence_table
from symjax.report.formats import csv_table, latex
from symjax.report.gallery import pictures
from symjax.report.judgement import verdict
from symjax.report.page import render, write
from symjax.report.picture import Picture
from symjax.report.quality import ood_scores
from symjax.report.scores import Averages, Bias, Method, Scores, Task
from symjax.report.surfaces import across, between
from symjax.report.tables import summary, tables
