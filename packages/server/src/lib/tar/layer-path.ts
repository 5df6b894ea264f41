import { LayerError, quoteName } from './layer-error.ts';

/** Limits of Linux and of squashfs. */
export const MAX_NAME_BYTES = 255;
export const MAX_PATH_BYTES = 4095;

/**
 * Splits an entry's name into components, none for the root. Drops a leading slash and resolves `..` lexically, as
 * container engines do. Throws {@link LayerError} for a name that leads out of the root or is too long.
 */
export function parseLayerPath(name: string): string[] {
  if (name.length > MAX_PATH_BYTES)
    throw new LayerError(`${quoteName(name)} is longer than ${MAX_PATH_BYTES} bytes`);
  if (name.includes('\0')) throw new LayerError(`${quoteName(name)} has a NUL byte`);
  const components: string[] = [];
  for (const component of name.split('/')) {
    if (component === '' || component === '.') continue;
    if (component === '..') {
      if (components.pop() === undefined) throw new LayerError(`${quoteName(name)} leads out of the image`);
      continue;
    }
    if (component.length > MAX_NAME_BYTES) {
      throw new LayerError(`${quoteName(name)} has a component longer than ${MAX_NAME_BYTES} bytes`);
    }
    components.push(component);
  }
  return components;
}
