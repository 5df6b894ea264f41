/**
 * From the wire's snake_case to the client's camelCase and back. Each field is named by hand: keys of the caller's
 * own data (labels, environment variables) pass through untouched.
 */

export type WireObject = Readonly<Record<string, unknown>>;

export function readObject(value: unknown, what: string): WireObject {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as WireObject;
  throw new TypeError(`${what} is not an object`);
}

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

/** Null where the field is absent or null. */
export function readOptionalString(object: WireObject, field: string): string | null {
  return object[field] === undefined || object[field] === null ? null : readString(object, field);
}

/** Null where the field is absent or null. */
export function readOptionalNumber(object: WireObject, field: string): number | null {
  return object[field] === undefined || object[field] === null ? null : readNumber(object, field);
}

/** Absent or null counts as false. */
export function readFlag(object: WireObject, field: string): boolean {
  return object[field] === true;
}

export function readStringMap(object: WireObject, field: string): Record<string, string> {
  const map = readObject(object[field] ?? {}, field);
  // fromEntries and not assignment: a key named __proto__ stays a key.
  return Object.fromEntries(Object.keys(map).map((key) => [key, readString(map, key)]));
}

/**
 * Renames the caller's options for the wire. An option that is not in the table is refused, so that a typo in
 * plain JavaScript does not pass silently.
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
    body[field] = value;
  }
  return body;
}

/** JSON has no NaN and no Infinity: both would be sent as null. */
export function requireJsonNumber(value: unknown, what: string): void {
  if (typeof value !== 'number' || Number.isFinite(value)) return;
  throw new TypeError(`${what} must be a finite number, not ${value}`);
}

/** One segment of a path, encoded. An empty one, `.` or `..` would make another address of it. */
export function encodeSegment(value: string, what: string): string {
  if (typeof value !== 'string' || value === '' || value === '.' || value === '..') {
    throw new TypeError(`${what} must be a string that names one, not ${JSON.stringify(value)}`);
  }
  return encodeComponent(value, what);
}

/** `?a=b&c=d` without what is undefined; an array repeats its name. Empty when nothing is left. */
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
