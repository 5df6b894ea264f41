/**
 * Key of the method that Node.js, Deno and Bun call to print an object with `console.log`. It is a registered symbol, so
 * that no module of Node.js is imported; a browser ignores it.
 */
export const INSPECT: unique symbol = Symbol.for('nodejs.util.inspect.custom') as never;

/** Arguments that the runtime passes to the method: the options of the print, and the function that prints a value. */
export type InspectArguments = [
  depth: number,
  options: object,
  inspect: (value: unknown, options: object) => string,
];

/** Returns `Name { field: value }`, or `[Name]` where the runtime prints no deeper objects. */
export function describeObject(
  name: string,
  fields: Readonly<Record<string, unknown>>,
  [depth, options, inspect]: InspectArguments,
): string {
  return depth < 0 ? `[${name}]` : `${name} ${inspect(fields, options)}`;
}
