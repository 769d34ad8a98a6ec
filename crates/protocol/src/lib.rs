//! Wire dialects of providers: request inspection, SSE framing, usage extraction, error bodies, headers.
