const MAX_PORT = 65_535;

/** Ports that development servers use. */
export const COMMON_PORTS = [3000, 5173, 8000, 8080, 8888] as const;

/** Lifetimes of a link in seconds, with their names. The service allows at most 30 days. */
export const LIFETIMES: readonly (readonly [seconds: string, name: string])[] = [
  ['3600', '1 hour'],
  ['28800', '8 hours'],
  ['86400', '1 day'],
  ['604800', '7 days'],
  ['2592000', '30 days'],
];

/** Returns a port; undefined for a text that is none. */
export function parsePort(text: string): number | undefined {
  const trimmed = text.trim();
  if (!/^\d{1,5}$/u.test(trimmed)) return undefined;
  const port = Number(trimmed);
  return port >= 1 && port <= MAX_PORT ? port : undefined;
}

/** Whether a browser may open a link that the service made: it must be a page, not a script. */
export function isPageUrl(url: string): boolean {
  return URL.canParse(url) && ['http:', 'https:'].includes(new URL(url).protocol);
}
