// Questions that change while the mouse moves: one is under way at a time, and only the newest one waits.
//
// If every new question cancelled the one before, a cell that is dragged would have no answer until the mouse
// rests.

// action(signal, ...values) → answer; onAnswer(answer); onError(error). Returns a function with .stop().
export function askNewest(action, onAnswer, onError) {
  let [controller, waiting] = [null, null];
  const askNow = async (values) => {
    const own = new AbortController();
    controller = own;
    try {
      const answer = await action(own.signal, ...values);
      if (own === controller) onAnswer(answer);
    } catch (error) {
      if (own === controller && error.name !== "AbortError") onError(error);
    }
    if (own !== controller) return;
    controller = null;
    const next = waiting;
    waiting = null;
    if (next !== null) askNow(next);
  };
  const askLater = (...values) => {
    if (controller === null) askNow(values);
    else waiting = values;
  };
  // Cancel the question under way and the one that waits.
  askLater.stop = () => {
    controller?.abort();
    [controller, waiting] = [null, null];
  };
  return askLater;
}
