import { AppError, BUILTIN_REGISTRY, type ErrorCode } from '@coppice/contract';
import type { ProcessError } from './run-process.ts';

export interface RegistryFailure {
  image: string;
  registry: string;
  step: 'resolve' | 'pull';
  error: ProcessError;
}

interface Rule {
  /**
   * Searched in what skopeo wrote. Every pattern has a blank: the reference is in the text too, and a repository named
   * "unauthorized" must not decide.
   */
  pattern: RegExp;
  code: ErrorCode;
  explain: (failure: RegistryFailure) => string;
}

/** The first that matches decides. */
const RULES: readonly Rule[] = [
  {
    pattern: /no space left on device/u,
    code: 'capacity',
    explain: ({ image }) =>
      `image ${image}: this machine's disk is full; remove images or sandboxes and try again`,
  },
  {
    pattern:
      /manifest unknown|name unknown|repository name not known|: repository .* not found|404 \(Not Found\)/u,
    code: 'image_not_found',
    explain: ({ image, registry }) => `image ${image} is not in the registry ${registry}; check name and tag`,
  },
  {
    pattern:
      /: unauthorized|: denied|: forbidden|authentication required|requested access to the resource|invalid username\/password|(?:status|code|token:).* 40[13]/iu,
    code: 'image_not_found',
    explain: ({ image, registry }) =>
      `image ${image}: the registry ${registry} does not show it; it does not exist, or it is private and needs credentials that this service does not have`,
  },
  {
    pattern: /toomanyrequests|too many requests|: 429 /iu,
    code: 'registry_unavailable',
    explain: ({ image, registry }) =>
      `image ${image}: the registry ${registry} limits our requests; try again later`,
  },
  {
    pattern: /server gave HTTP response to HTTPS client/u,
    code: 'registry_unavailable',
    explain: ({ image, registry }) =>
      `image ${image}: the registry ${registry} speaks plain HTTP; the operator must list it as an insecure registry`,
  },
  {
    pattern: /certificate (?:signed by|is not|has expired|is valid)|x509: /u,
    code: 'registry_unavailable',
    explain: ({ image, registry }) =>
      `image ${image}: the certificate of the registry ${registry} is not trusted`,
  },
  {
    pattern: /no such host|server misbehaving|name resolution/u,
    code: 'registry_unavailable',
    explain: ({ image, registry }) =>
      `image ${image}: the name of the registry ${registry} cannot be resolved`,
  },
  {
    pattern: /connection refused|no route to host|network is unreachable|connection reset|: EOF/u,
    code: 'registry_unavailable',
    explain: ({ image, registry }) => `image ${image}: the registry ${registry} cannot be reached`,
  },
  {
    pattern:
      /[Dd]igest did not match|does not match (?:provided|expected|digest)|did not match expected digest|digest .* mismatch/u,
    code: 'registry_unavailable',
    explain: ({ image, registry }) =>
      `image ${image}: the registry ${registry} sent data that does not match its digest`,
  },
  {
    pattern:
      /invalid reference format|no image found in manifest list|unsupported (?:schema|manifest|MIME)|manifest media ?type|gzip: invalid|zstd: |magic number mismatch|flate: corrupt/iu,
    code: 'invalid_image',
    explain: ({ image }) => `image ${image} is damaged or of a kind that is not supported`,
  },
];

/** What a failed skopeo means for who asked for the image; its own words are the cause, for the log. */
export function translateRegistryFailure(failure: RegistryFailure): AppError {
  const { error, image, registry, step } = failure;
  const text = error.stderr;
  if (error.isTimeout) {
    return new AppError(
      'registry_unavailable',
      `image ${image}: the registry ${registry} did not ${DONE[step]} in time`,
      {
        cause: error,
      },
    );
  }
  const rule = RULES.find(({ pattern }) => pattern.test(text));
  if (rule !== undefined) return new AppError(rule.code, rule.explain(failure), { cause: error });
  if (registry === BUILTIN_REGISTRY) {
    return new AppError('internal', `the built-in image ${image} cannot be read; run the set-up again`, {
      cause: error,
    });
  }
  return new AppError(
    'registry_unavailable',
    `image ${image}: the registry ${registry} failed to ${DONE[step]}`,
    {
      cause: error,
    },
  );
}

const DONE = { resolve: 'answer', pull: 'deliver it' } as const;
