#!/bin/sh
# Say whether a submitted job is running (or waits), has ended with success, or has failed: status.sh NUMBER
# A job that the queue has forgotten counts as failed: it is submitted again, and one that was done finds its work done.
if command -v qstat >/dev/null; then
  told=$(qstat -x -f "$1" 2>/dev/null | sed -n 's/^ *\(job_state\|Exit_status\) = //p' | tr '\n' ' ')
  case $told in
    "") echo failed ;;
    F*" 0 "* | C*" 0 "*) echo success ;;
    F* | C*) echo failed ;;
    *) echo running ;;
  esac
else
  case $(bjobs -noheader -o stat "$1" 2>/dev/null) in
    DONE) echo success ;;
    "" | EXIT | ZOMBI) echo failed ;;
    *) echo running ;;
  esac
fi
