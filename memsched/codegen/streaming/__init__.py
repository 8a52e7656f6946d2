"""A network as C that streams pixels: maps are rings of the pixels that readers still need, weights stay in flash.

Source: "Deep Fusion" (layer fusion with on-chip reuse), whose pieces are single pixels here.
"""
