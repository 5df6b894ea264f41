/** A process, as each has modules of its own: tells which files a server loads before it is preloaded, and which after. */
import { registerHooks } from 'node:module';
import { buildIdleServer } from '../http/idle-server.ts';
import { preloadServer } from '../http/preload.ts';

export interface LateLoads {
  /** URLs. */
  whilePreloaded: string[];
  later: string[];
  document: string;
}

const loaded: string[] = [];
registerHooks({
  load: (url, context, next) => {
    if (url.startsWith('file:')) loaded.push(url);
    return next(url, context);
  },
});
await preloadServer('1');
const whilePreloaded = loaded.splice(0);
const app = await buildIdleServer('1');
const document = JSON.stringify(app.swagger());
await app.close();
process.send?.({ whilePreloaded, later: loaded, document } satisfies LateLoads);
