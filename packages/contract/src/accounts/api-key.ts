/**
 * API keys: `cop_live_<region>_<40 base62>`. A client finds its service by the region segment. A service distinguishes
 * a key of another region from a wrong key by it, without a look-up.
 */
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_LENGTH = 40;
const REGION = '[a-z][a-z0-9-]{0,15}';
const REGION_PATTERN = new RegExp(`^${REGION}$`);
const KEY_PATTERN = new RegExp(`^cop_live_(${REGION})_([0-9A-Za-z]{${SECRET_LENGTH}})$`);

export interface ApiKeyParts {
  region: string;
  /** Last four characters: the only part of the key that may be shown. */
  last4: string;
}

/** Whether `text` can be the region segment of a key: 1–16 of a–z, 0–9 and `-`, beginning with a letter. */
export function isRegionName(text: string): boolean {
  return REGION_PATTERN.test(text);
}

/** Returns the parts of a well-formed key, else undefined. Does not check whether the key is known. */
export function parseApiKey(text: string): ApiKeyParts | undefined {
  const match = KEY_PATTERN.exec(text);
  if (match?.[1] === undefined) return undefined;
  return { region: match[1], last4: text.slice(-4) };
}

/**
 * Generates a random key for `region`: 238 bits from the platform's cryptographic source. Throws RangeError for an
 * invalid region name.
 */
export function generateApiKey(region: string): string {
  return buildApiKey(region, (size) => crypto.getRandomValues(new Uint8Array(size)));
}

/**
 * Builds a key for `region` from uniformly distributed bytes. `next` is called again when too many of them are rejected. Throws
 * RangeError for an invalid region name.
 */
export function buildApiKey(region: string, next: (size: number) => Uint8Array): string {
  if (!isRegionName(region)) throw new RangeError(`"${region}" cannot be the region of an API key`);
  return `cop_live_${region}_${toBase62(SECRET_LENGTH, next)}`;
}

function toBase62(length: number, next: (size: number) => Uint8Array): string {
  let text = '';
  while (text.length < length) {
    for (const byte of next(length)) {
      // 248 is the largest multiple of 62 in a byte; larger values would make the first characters more likely.
      if (byte < 248 && text.length < length) text += ALPHABET.charAt(byte % 62);
    }
  }
  return text;
}
