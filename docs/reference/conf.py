"""Settings of Sphinx for the API reference."""

project = "graphdnn"
copyright = "the graphdnn developers"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "graphdnn API reference"
html_copy_source = False
html_show_sourcelink = False
add_module_names = True  # several modules have an of_graph or an of_plan
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
# A type such as bytes in a signature is searched among the attributes of that name as well.
suppress_warnings = ["ref.python"]
