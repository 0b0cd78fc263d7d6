"""The paper's figures, one module per label; `pcbf_analysis.artefacts` lists them."""
