/**
 * API keys: `cop_live_<region>_<40 base62>`. The region segment lets a client find its service and lets a service
 * tell a key of another region from a wrong one, without a look-up.
 */
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_LENGTH = 40;
const REGION = '[a-z][a-z0-9-]{0,15}';
const REGION_PATTERN = new RegExp(`^${REGION}$`);
const KEY_PATTERN = new RegExp(`^cop_live_(${REGION})_([0-9A-Za-z]{${SECRET_LENGTH}})$`);

export interface ApiKeyParts {
  region: string;
  /** What may be shown of the key. */
  last4: string;
}

/** True for what can be the region segment of a key: 1–16 of a–z, 0–9 and `-`, beginning with a letter. */
export function isRegionName(text: string): boolean {
  return REGION_PATTERN.test(text);
}

/** The parts of a well-formed key, else undefined. Says nothing about whether the key is known. */
export function parseApiKey(text: string): ApiKeyParts | undefined {
  const match = KEY_PATTERN.exec(text);
  if (match?.[1] === undefined) return undefined;
  return { region: match[1], last4: text.slice(-4) };
}

/** A new random key for `region`: 238 bits from the platform's cryptographic source. */
export function generateApiKey(region: string): string {
  if (!isRegionName(region)) throw new RangeError(`"${region}" cannot be the region of an API key`);
  return `cop_live_${region}_${randomBase62(SECRET_LENGTH)}`;
}

function randomBase62(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(length))) {
      // 248 is the largest multiple of 62 in a byte; what is above would make the first letters likelier.
      if (byte < 248 && text.length < length) text += ALPHABET.charAt(byte % 62);
    }
  }
  return text;
}
