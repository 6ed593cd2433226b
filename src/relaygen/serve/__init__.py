"""The pair as one OpenAI-compatible model over HTTP. Needs the extra ``[serve]``.

`make_app` gives an ASGI application; ``relaygen serve`` runs it.
"""
