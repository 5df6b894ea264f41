/** Address of a directory in the tab; with `view`, also of one of its files. */
export function addressOf(sandboxId: string, path: string, view?: string): string {
  const query = new URLSearchParams({ path, ...(view === undefined ? {} : { view }) });
  return `/sandboxes/${sandboxId}/files?${query.toString()}`;
}
