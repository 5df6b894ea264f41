import { z } from 'zod';

/** An id of any shape may be asked for; one that does not exist is 404, not 400. */
export const SandboxParams = z.strictObject({ id: z.string().max(200) });

/** Any text: which ones name a registry is said in words, not by a pattern. */
export const RegistryParams = z.strictObject({ registry: z.string().max(1024) });
