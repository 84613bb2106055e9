"""The command line, `clearhead VERB THING [options]`. Read in this order:

main.py          the list of verbs; errors become one line, a hint and an exit code
hints.py         the hint after an error
options.py       options with the same meaning in every verb; --json
train.py         train a recipe, or resume a run
runs.py          list runs
eval.py          measure a trained model
predict.py       run a trained model on inputs
generate.py      continue a prompt
prose.py         the tokens of generated text: words as prose, stop and unknown tokens
recipes.py       list, show, copy and write recipes
data.py          list and fetch data sets
check.py         find the mistakes in somebody's code
exercise.py      write a file to start from
grade.py         grade the submissions of a class; an autograder for Gradescope
audit.py         find what is wrong in a handout
program.py       list, show and run programs that are compiled into weights
lab.py           run experiments
plot.py          draw masks, positions, schedules, metrics, attention, reports
bench.py         measure speed
progress.py      the progress of a run on stderr
streams.py       stdout and stderr that survive closed pipes and narrow encodings
interrupts.py    Ctrl-C while modules are imported
"""

__all__: list[str] = []
