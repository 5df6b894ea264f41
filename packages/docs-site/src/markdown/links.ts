/** Turns links between files of the repository into links between pages. */
import { existsSync } from 'node:fs';
import { join, posix } from 'node:path';
import type { Source } from '../sources/sources.ts';

/** Where a link leads: `undefined` for a file of the repository that is not on the site. */
export type ResolveLink = (target: string, from: string) => string | undefined;

const ELSEWHERE = /^(?:https?|mailto):/iu;
/** Any other scheme, such as `javascript:`. */
const SCHEME = /^[a-z][a-z+.-]*:/iu;
const FOLDERS: Readonly<Record<string, string>> = {
  docs: '/docs',
  'docs/guides': '/docs/guides',
  'docs/reference': '/docs/reference',
  'docs/decisions': '/docs/decisions',
};
const FILES: Readonly<Record<string, string>> = { 'docs/reference/openapi.json': '/openapi.json' };

/** Builds the resolver. It throws for a link to a file that does not exist. `images` collects the images in use. */
export function buildResolver(
  repository: string,
  sources: readonly Source[],
  images: Map<string, string>,
): ResolveLink {
  const pages = new Map(sources.map(({ file, path }) => [file, `/docs/${path}`]));
  return (target, from) => {
    if (ELSEWHERE.test(target)) return target;
    if (SCHEME.test(target)) return undefined;
    const [path = '', anchor] = target.split('#', 2);
    const hash = anchor === undefined ? '' : `#${anchor}`;
    if (path === '') return hash;
    const file = posix.join(posix.dirname(from), decodeURIComponent(path)).replace(/\/$/u, '');
    if (file.startsWith('..') || !existsSync(join(repository, file)))
      throw new Error(`${from}: the link ${target} leads to no file`);
    const page = pages.get(file) ?? FOLDERS[file] ?? FILES[file];
    if (page !== undefined) return `${page}${hash}`;
    if (!/\.(?:svg|png)$/u.test(file)) return undefined;
    const url = `/docs/images/${posix.basename(file)}`;
    images.set(url, file);
    return url;
  };
}
