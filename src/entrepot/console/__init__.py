"""The console: the page that the broker serves to people, as files.

`page/` has what a browser gets, as it is: HTML, CSS and modules of JavaScript, without a build
step and without anything from elsewhere. What it asks the broker is in `gateway.http.console`.
"""
