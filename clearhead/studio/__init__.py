"""A local web page to watch a transformer work, and to change it: clearhead studio.

The models
    listing.py       the models of a studio by id, without loading them
    sources.py       loads them: runs, weights of other projects, the built-in models
    lecture/         the built-in models; lecture_models.py trains them
The worker: a process with torch, which answers questions
    questions.py     the questions of the page, and the function that answers each
    views/           these functions, one file per view
    arguments.py     the arguments of a question, checked by the function's annotations
    frames.py        an answer as bytes: JSON with arrays
    worker.py        the process: reads questions, writes answers
The server: a process without torch, which asks the worker
    worker_process.py  starts the worker, exchanges messages with it through pipes, ends it
    pending.py       a question that waits for answers, and the error that it may end with
    supervisor.py    asks the worker, cancels, times out, and restarts it when it ends
    exchange.py      a request as the door reads it, and the response
    door.py          who may ask: Host, sizes, Origin, token
    listening.py     the sockets, the limits of a connection, shutdown by a signal
    requests.py      reads bodies of requests; cancels work when a client disconnects
    server.py        the routes of the page and its questions; start and stop
    completions.py   the OpenAI-compatible routes: /v1/…
    completion_requests.py  requests to /v1/completions, checked field by field
    completion_format.py  what /v1/… answers: completions, chunks, errors
    trainings.py     the routes of runs: list, follow, compare, start, stop, resume
    run_list.py      the runs of a studio, and which settings a page may change
    training_process.py  the trainings that the studio has started
    checking.py      the routes of `clearhead check` for pasted code
The page
    page/            HTML, CSS and JavaScript: main.js and shared parts; page/views/ has the views
    page.py          the files of the page, as the server sends them
    whole_page.py    the page in one file that needs no server
    page_views.py    the views that a page without a server can show
    first_answers.py  the answers with which a view opens, for a page without a server
    look.py          look(run, text): one view in a notebook, or as such a file; clearhead.look
"""

__all__: list[str] = []
