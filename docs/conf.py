"""The site: `make docs` builds it into build/site."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tallyroom.simulation.reports.message_flows import write_flows  # noqa: E402

project = "Tallyroom"
author = "The Tallyroom authors"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# Notebooks are kept without outputs: what readers see was computed by this version.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
html_theme = "furo"
html_title = "Tallyroom"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
python_use_unqualified_type_names = True
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository

write_flows(HERE / "flows")
