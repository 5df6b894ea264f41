import type { App } from '../app.ts';

interface Route {
  pattern: RegExp;
  /** Names in its URL that stand for anything. */
  parameters: number;
  method: string;
}

/** @fastify/cors takes OPTIONS of every path, also of one that has nothing else. */
const PREFLIGHTS = '*';

/** The methods of a path that was asked for with another one. */
export class AllowedMethods {
  readonly #routes: Route[] = [];

  /** To be called before the first route is added. */
  watch(app: App): void {
    app.addHook('onRoute', ({ url, method }) => {
      if (url === PREFLIGHTS) return;
      const parameters = url.split('/:').length - 1;
      for (const each of [method].flat())
        this.#routes.push({ pattern: toPattern(url), parameters, method: each });
    });
  }

  /** Empty for a path that has none. `/v1/runs/history` is not a sandbox, though `/v1/runs/:id` would fit. */
  of(path: string): string[] {
    const fitting = this.#routes.filter(({ pattern }) => pattern.test(path));
    const fewest = Math.min(...fitting.map(({ parameters }) => parameters));
    const methods = fitting.filter(({ parameters }) => parameters === fewest).map(({ method }) => method);
    return [...new Set(methods)].sort();
  }
}

/** `/v1/runs/:id` fits a path that Fastify would find for it. */
function toPattern(url: string): RegExp {
  const segments = url
    .split('/')
    .map((segment) => (segment.startsWith(':') ? '[^/]+' : segment.replaceAll('.', String.raw`\.`)));
  return new RegExp(`^${segments.join('/')}$`, 'u');
}
