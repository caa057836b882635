"""How a user enters the hub, without a browser."""

import requests


def log_in(hub, account, password=None):
    """Return a session, and the answer to the login, which leads to the user's server if it is let in."""
    session = requests.Session()
    session.get(f"{hub.url}/hub/login", timeout=30)
    form = {"username": account.name, "password": password or account.password, "_xsrf": session.cookies["_xsrf"]}
    return session, session.post(f"{hub.url}/hub/login", data=form, timeout=60, allow_redirects=False)
