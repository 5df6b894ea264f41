import { lazy } from 'preact-iso';
import type { ComponentType } from 'preact';

/**
 * Returns a component whose code is loaded when it is first shown. If that fails, it throws as it is drawn, so that the
 * boundary around it says so; the router would wait without an end.
 */
export function lazyPart<Props>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  return lazy(async () => {
    try {
      return await load();
    } catch (error) {
      return () => {
        throw error;
      };
    }
  }) as ComponentType<Props>;
}
