/** Parses the WWW-Authenticate header: challenges, each a scheme with parameters (RFC 9110, 11.6.1). */

export interface Challenge {
  /** In lower case. */
  scheme: string;
  /** Names in lower case, values without their quotes. */
  parameters: ReadonlyMap<string, string>;
}

const MAX_HEADER_LENGTH = 8192;
const TOKEN = String.raw`[!#$%&'*+.^_\x60|~0-9A-Za-z-]+`;
/** Matches a name with its value, or else a scheme, alone or followed by a token68, which is skipped. */
const PART = new RegExp(
  String.raw`[\s,]*(?:(${TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|(${TOKEN}))|(${TOKEN})(?:[ \t]+[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$)))?)`,
  'uy',
);

/** Parses the challenges up to the first malformed part. */
export function parseChallenges(header: string): Challenge[] {
  const challenges: { scheme: string; parameters: Map<string, string> }[] = [];
  if (header.length > MAX_HEADER_LENGTH) return challenges;
  PART.lastIndex = 0;
  for (let match = PART.exec(header); match !== null; match = PART.exec(header)) {
    const [, name, quoted, bare, scheme] = match;
    if (scheme !== undefined) {
      challenges.push({ scheme: scheme.toLowerCase(), parameters: new Map() });
      continue;
    }
    const value = quoted === undefined ? (bare ?? '') : quoted.replaceAll(/\\(.)/gu, '$1');
    const parameters = challenges.at(-1)?.parameters;
    // The first parameter of a name counts: a second one must not overrule what an earlier reader saw.
    if (parameters === undefined) return challenges;
    if (name !== undefined && !parameters.has(name.toLowerCase())) parameters.set(name.toLowerCase(), value);
  }
  return challenges;
}
