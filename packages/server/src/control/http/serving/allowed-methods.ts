import type { App } from '../app.ts';

interface Route {
  pattern: RegExp;
  /** Number of parameters in its URL. */
  parameters: number;
  method: string;
}

/** Route of @fastify/cors: OPTIONS of every path, even of one without another method. */
const PREFLIGHTS = '*';

/** Finds the methods of a path that was requested with another method. */
export class AllowedMethods {
  readonly #routes: Route[] = [];

  /** Records the routes of `app`. Call before adding the first route. */
  watch(app: App): void {
    app.addHook('onRoute', ({ url, method }) => {
      if (url === PREFLIGHTS) return;
      const parameters = url.split('/:').length - 1;
      for (const each of [method].flat())
        this.#routes.push({ pattern: toPattern(url), parameters, method: each });
    });
  }

  /** Returns the methods of a path, or none. `/v1/runs/history` is not a sandbox, though `/v1/runs/:id` matches. */
  of(path: string): string[] {
    const fitting = this.#routes.filter(({ pattern }) => pattern.test(path));
    const fewest = Math.min(...fitting.map(({ parameters }) => parameters));
    const methods = fitting.filter(({ parameters }) => parameters === fewest).map(({ method }) => method);
    return [...new Set(methods)].sort();
  }
}

/** Returns a pattern for the paths that Fastify routes to a URL such as `/v1/runs/:id`. */
function toPattern(url: string): RegExp {
  const segments = url.split('/').map((segment) => {
    if (segment === '*') return '.*';
    return segment.startsWith(':') ? '[^/]+' : segment.replaceAll('.', String.raw`\.`);
  });
  return new RegExp(`^${segments.join('/')}$`, 'u');
}
