import { loadConfig } from '../config.ts';

/** Path of the hostctl that set-up built. */
export const HOSTCTL = loadConfig().runner.tools.hostctl;
