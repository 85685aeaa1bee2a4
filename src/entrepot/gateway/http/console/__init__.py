"""What the console, the page for people, needs besides the management API.

The page itself is files, in `entrepot.console`. It uses RabbitMQ's paths where they say what it
wants to know, and the paths below `/api/console` for the rest:

- `logins` and `entering`: a person logs in once, and is known by a cookie then.
- `live`, `samples`, `feed` and `event_stream`: what happens now, for all who watch, computed once.
- `paging`: lists that are sorted, filtered and cut here, so that only a page of them is described.
- `queues`, `topics`, `reader`, `groups`, `routing`, `search` and the like: the functions.

Everything that is shown or done is asked of the user's principal first, as anywhere else.
"""
