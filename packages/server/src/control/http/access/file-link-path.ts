/** Links to files live outside /v1, where an API key counts without exception. */
export const FILE_LINK_PREFIX = '/files/';

/** Returns the path of a request without the token of a link, which must not reach a log. */
export function withoutToken(path: string): string {
  return path.startsWith(FILE_LINK_PREFIX) ? `${FILE_LINK_PREFIX}…` : path;
}
