import { loadConfig } from '../config.ts';

/** Path of the launcher that set-up built. */
export const LAUNCHER = loadConfig().runner.tools.jail;
