/**
 * Puts the newest entries on top of a list, without those that it has. Undefined if the list may lack some in between:
 * none of the newest is in it.
 */
export function mergeNewest<Entry extends { id: string }>(
  list: readonly Entry[],
  newest: readonly Entry[],
): readonly Entry[] | undefined {
  const known = new Set(list.map(({ id }) => id));
  const added = newest.filter(({ id }) => !known.has(id));
  if (added.length === 0) return list;
  if (list.length > 0 && added.length === newest.length) return undefined;
  return [...added, ...list];
}
