import { z } from 'zod';

/** Body of a request that takes none: an empty object is accepted, and a field in it is refused as a mistake. */
export const NoBody = z.preprocess((body) => body ?? {}, z.strictObject({}));
