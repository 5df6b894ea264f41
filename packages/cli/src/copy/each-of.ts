interface Lanes<Item> {
  /** How many items are worked on at once. */
  lanes: number;
  work: (item: Item) => Promise<void>;
  /** Called once, at the first failure, to end the work on the other items. */
  onFailure: (error: unknown) => void;
}

/**
 * Calls `work` for each item. After a failure, also one of the items themselves, no further item is begun. Throws the first
 * failure once no work runs.
 */
export async function eachOf<Item>(
  items: AsyncIterable<Item>,
  { lanes, work, onFailure }: Lanes<Item>,
): Promise<void> {
  const running = new Set<Promise<void>>();
  let failure: { error: unknown } | undefined;
  const fail = (error: unknown): void => {
    if (failure !== undefined) return;
    failure = { error };
    onFailure(error);
  };
  // A function, because the compiler does not know that the work changes it.
  const getFailure = () => failure;
  try {
    for await (const item of items) {
      if (getFailure() !== undefined) break;
      const one: Promise<void> = work(item)
        .catch(fail)
        .finally(() => running.delete(one));
      running.add(one);
      if (running.size >= lanes) await Promise.race(running);
      if (getFailure() !== undefined) break;
    }
  } catch (error) {
    fail(error);
  }
  await Promise.all(running);
  const found = getFailure();
  if (found !== undefined) throw found.error;
}
