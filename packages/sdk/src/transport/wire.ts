/**
 * Converts between the wire's snake_case and the client's camelCase. Each field is listed explicitly, so that keys of
 * the caller's data (labels, environment variables) are not changed. The `read` functions throw `TypeError` for a value
 * of another type.
 */

/** A JSON object as received. */
export type WireObject = Readonly<Record<string, unknown>>;

/** Returns the value as an object. `what` names it in the message of the error. */
export function readObject(value: unknown, what: string): WireObject {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as WireObject;
  throw new TypeError(`${what} is not an object`);
}

/** Returns the value as an array of parsed items. `what` names it in the message of the error. */
export function readArray<Item>(value: unknown, what: string, readItem: (item: unknown) => Item): Item[] {
  if (Array.isArray(value)) return value.map((item: unknown) => readItem(item));
  throw new TypeError(`${what} is not an array`);
}

export function readString(object: WireObject, field: string): string {
  const value = object[field];
  if (typeof value === 'string') return value;
  throw new TypeError(`${field} is not a string`);
}

export function readNumber(object: WireObject, field: string): number {
  const value = object[field];
  if (typeof value === 'number') return value;
  throw new TypeError(`${field} is not a number`);
}

/** Returns null if the field is absent or null. */
export function readOptionalString(object: WireObject, field: string): string | null {
  return object[field] === undefined || object[field] === null ? null : readString(object, field);
}

/** Returns null if the field is absent or null. */
export function readOptionalNumber(object: WireObject, field: string): number | null {
  return object[field] === undefined || object[field] === null ? null : readNumber(object, field);
}

/** Returns true if the field is `true`. Absent and null count as false. */
export function readFlag(object: WireObject, field: string): boolean {
  return object[field] === true;
}

/** Returns an object of strings, empty if the field is absent or null. */
export function readStringMap(object: WireObject, field: string): Record<string, string> {
  const map = readObject(object[field] ?? {}, field);
  // With fromEntries a key named __proto__ stays a key; an assignment would set the prototype.
  return Object.fromEntries(Object.keys(map).map((key) => [key, readString(map, key)]));
}

/**
 * Renames the caller's options for the wire. Throws `TypeError` for an option that is not in `fields`, so that a typo
 * in plain JavaScript is not ignored, and for NaN, infinity and an invalid date.
 */
export function buildWireBody(
  options: object,
  fields: Readonly<Record<string, string>>,
  what: string,
): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const [option, value] of Object.entries(options) as [string, unknown][]) {
    const field = Object.hasOwn(fields, option) ? fields[option] : undefined;
    if (field === undefined) {
      throw new TypeError(`${what}: unknown option "${option}"; known are ${Object.keys(fields).join(', ')}`);
    }
    if (value === undefined) continue;
    requireJsonNumber(value, `${what}: ${option}`);
    requireDate(value, `${what}: ${option}`);
    body[field] = value;
  }
  return body;
}

/** Throws `TypeError` for NaN and infinity. JSON has neither: both would be sent as null. */
export function requireJsonNumber(value: unknown, what: string): void {
  if (typeof value !== 'number' || Number.isFinite(value)) return;
  throw new TypeError(`${what} must be a finite number, not ${value}`);
}

/** Throws `TypeError` for an invalid date, which would be sent as null. */
function requireDate(value: unknown, what: string): void {
  if (value instanceof Date && Number.isNaN(value.getTime()))
    throw new TypeError(`${what} is an invalid date`);
}

/**
 * Returns one encoded segment of a path. Throws `TypeError` for an empty text, `.` and `..`, which would change the
 * path.
 */
export function encodeSegment(value: string, what: string): string {
  if (typeof value !== 'string' || value === '' || value === '.' || value === '..') {
    throw new TypeError(`${what} must be a text other than "", "." and "..", not ${JSON.stringify(value)}`);
  }
  return encodeComponent(value, what);
}

/** Returns `?a=b&c=d` without undefined parameters, or an empty text. An array repeats its parameter. */
export function buildQuery(
  parameters: Readonly<Record<string, string | number | readonly string[] | undefined>>,
): string {
  const pairs = Object.entries(parameters).flatMap(([name, value]) =>
    [value ?? []].flat().map((one) => `${name}=${encodeComponent(String(one), name)}`),
  );
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
}

function encodeComponent(value: string, what: string): string {
  try {
    return encodeURIComponent(value);
  } catch (cause) {
    throw new TypeError(`${what} is not well-formed Unicode`, { cause });
  }
}
