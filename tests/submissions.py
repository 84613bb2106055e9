"""Check a text as a student's submission, without a sandbox: the texts in tests are ours."""

from clearhead.exercises.self_test import check_source as check_source
