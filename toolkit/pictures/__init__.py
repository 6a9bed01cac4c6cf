"""Pictures drawn here: diagrams, charts and pages, as SVG and HTML without scripts."""
