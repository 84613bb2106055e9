"""The command line, `clearhead VERB THING [options]`. Read in this order:

main.py          the list of verbs; errors become one line, a hint and an exit code
hints.py         the hint after an error
options.py       options with the same meaning in every verb; --json
train.py         train a recipe, or resume a run
launch.py        train on several processes or machines; launch_checks.py, the mistakes in that
runs.py          list runs
eval.py          measure a trained model
predict.py       run a trained model on inputs
generate.py      continue a prompt
studio.py        a local web page to watch a model work, and to change it
recipes.py       list, show, copy and write recipes
data.py          list and fetch data sets
pack.py          texts as tokens on a disk: data pack, data verify
check.py         find the mistakes in somebody's code
exercise.py      write a file to start from
grade.py         grade the submissions of a class; an autograder for Gradescope
audit.py         find what is wrong in a handout
program.py       list, show and run programs that are compiled into weights
lab.py           run experiments
plot.py          draw masks, positions, schedules, metrics, attention, reports
plan.py          compute the memory and the time of a training step
bench.py         measure speed
progress.py      the progress of a run on stderr
byte_progress.py how many bytes are done, on stderr
streams.py       stdout and stderr that survive closed pipes and narrow encodings
interrupts.py    Ctrl-C while modules are imported
"""

__all__: list[str] = []
