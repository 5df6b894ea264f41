/** Marks the heading that is in view in the list of headings. */
export function followHeadings(): void {
  const links = new Map(
    [...document.querySelectorAll<HTMLAnchorElement>('.contents a')].map((link) => [
      link.hash.slice(1),
      link,
    ]),
  );
  if (links.size === 0) return;
  const headings = [...links.keys()]
    .map((id) => document.getElementById(decodeURIComponent(id)))
    .filter((heading) => heading !== null);
  const mark = (): void => {
    const current = headings.findLast((heading) => heading.getBoundingClientRect().top < 120) ?? headings[0];
    for (const [id, link] of links) link.classList.toggle('current', decodeURIComponent(id) === current?.id);
  };
  let isPlanned = false;
  document.addEventListener(
    'scroll',
    () => {
      if (isPlanned) return;
      isPlanned = true;
      requestAnimationFrame(() => {
        isPlanned = false;
        mark();
      });
    },
    { passive: true },
  );
  mark();
}
