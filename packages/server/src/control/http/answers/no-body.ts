import { z } from 'zod';

/** Of a request that takes none: an empty object will do, a field in it is a mistake that must not pass. */
export const NoBody = z.preprocess((body) => body ?? {}, z.strictObject({}));
