/** Calls `work` for each item, for at most `lanes` at once. After a failure no further item is begun. */
export async function eachOf<Item>(
  items: AsyncIterable<Item>,
  lanes: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const running = new Set<Promise<void>>();
  let failure: { error: unknown } | undefined;
  for await (const item of items) {
    const one: Promise<void> = work(item)
      .catch((error: unknown) => void (failure ??= { error }))
      .finally(() => running.delete(one));
    running.add(one);
    if (running.size >= lanes) await Promise.race(running);
    if (failure !== undefined) break;
  }
  await Promise.all(running);
  if (failure !== undefined) throw failure.error;
}
