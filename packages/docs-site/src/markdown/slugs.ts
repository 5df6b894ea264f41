/** Makes the ids of headings as Markdown viewers do: lower case, no punctuation, a dash for each space. */
export class Slugs {
  readonly #uses = new Map<string, number>();

  add(heading: string): string {
    const slug = heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-');
    const uses = this.#uses.get(slug) ?? 0;
    this.#uses.set(slug, uses + 1);
    return uses === 0 ? slug : `${slug}-${uses}`;
  }
}
