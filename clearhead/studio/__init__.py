"""A local web page to watch a transformer work, and to change it: clearhead studio.

listing.py       the models of a studio by id, without loading them
sources.py       loads them: runs, weights of other projects, the built-in models
questions.py     the questions of the page, and the function that answers each
views/           those functions, one file per view
arguments.py     the arguments of a question, checked by the function's annotations
frames.py        an answer as bytes: JSON with arrays
worker.py        the process that holds the models and answers questions
worker_process.py  starts that process, talks to it through pipes, ends it
pending.py       a question that waits for answers, and the error it may end with
supervisor.py    asks the worker, cancels, times out, and restarts it when it ends
exchange.py      a request as the door reads it, and its answer
door.py          who may ask: Host, Origin, token, sizes
listening.py     the sockets, the limits of a connection, shutdown by a signal
requests.py      reads bodies of requests; cancels work when a client disconnects
server.py        the routes; start and stop
page.py          the files of the page
whole_page.py    the page in one file that needs no server
page_views.py    the views that a page without a server can show
first_answers.py  the answers with which a view opens, for a page without a server
look.py          look(run, text): one view in a notebook, or as such a file
lecture_models.py  trains the built-in models, which are in lecture/
completion_requests.py  requests to /v1/completions, checked field by field
completion_format.py  what /v1/… answers: completions, chunks, errors
completions.py   the OpenAI-compatible routes: /v1/…
trainings.py     the routes of runs: list, follow, compare, start, stop, resume
run_list.py      the runs of a studio, and which settings a page may change
training_process.py  the trainings that the studio has started
checking.py      the diagnosis of `clearhead check` for pasted code

`from clearhead.studio.look import look` shows a view in a notebook; so does clearhead.look.
"""

__all__: list[str] = []
