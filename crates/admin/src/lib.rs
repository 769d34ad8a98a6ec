//! The console: pages and forms rendered on the server.
