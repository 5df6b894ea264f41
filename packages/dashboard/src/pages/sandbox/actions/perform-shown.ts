/** No event says that an operation has begun. One that takes longer is read, so that the page shows it. */
const SHOWN_AFTER_MS = 300;

/** Runs an action. The record is read again while it is under way, and at its end, also after a failure. */
export async function performShown<Result>(work: () => Promise<Result>, reload: () => void): Promise<Result> {
  const timer = setTimeout(reload, SHOWN_AFTER_MS);
  try {
    return await work();
  } finally {
    clearTimeout(timer);
    reload();
  }
}
