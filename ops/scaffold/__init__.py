"""`gapless init`: first files of a definition, as texts by the path they belong at.

Every way to begin (a starting point, a shipped definition) makes such texts; `write` puts them down.
"""
