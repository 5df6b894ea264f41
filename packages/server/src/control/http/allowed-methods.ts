import type { App } from './app.ts';

/** @fastify/cors takes OPTIONS of every path, also of one that has nothing else. */
const PREFLIGHTS = '*';

interface Route {
  pattern: RegExp;
  method: string;
}

/** The methods of a path that was asked for with another one. */
export class AllowedMethods {
  readonly #routes: Route[] = [];

  /** To be called before the first route is added. */
  watch(app: App): void {
    app.addHook('onRoute', ({ url, method }) => {
      if (url === PREFLIGHTS) return;
      for (const each of [method].flat()) this.#routes.push({ pattern: toPattern(url), method: each });
    });
  }

  /** Empty for a path that has none. */
  of(path: string): string[] {
    const methods = this.#routes.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method);
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
