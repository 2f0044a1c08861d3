//! One address with its methods. Every method that adds a handler takes the required permission as well, so no handler
//! can be added without one.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};

use super::Shared;
use super::auth::RequiredPermission;
use super::middleware::Guarded;

/// Handlers of one address.
pub struct Route {
    address: &'static str,
    methods: MethodRouter<Shared>,
    served: Vec<(Method, RequiredPermission)>,
}

impl Route {
    /// Creates a route without methods.
    pub fn at(address: &'static str) -> Self {
        Self {
            address,
            methods: MethodRouter::new(),
            served: Vec::new(),
        }
    }

    /// Adds the handler of `GET`, which also answers `HEAD`.
    pub fn get<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::GET, Method::GET, required, handler)
    }

    /// Adds the handler of `POST`.
    pub fn post<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::POST, Method::POST, required, handler)
    }

    /// Adds the handler of `PUT`.
    pub fn put<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::PUT, Method::PUT, required, handler)
    }

    /// Adds the handler of `PATCH`.
    pub fn patch<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::PATCH, Method::PATCH, required, handler)
    }

    /// Adds the handler of `DELETE`.
    pub fn delete<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::DELETE, Method::DELETE, required, handler)
    }

    fn on<H: Handler<T, Shared>, T: 'static>(
        mut self,
        filter: MethodFilter,
        method: Method,
        required: RequiredPermission,
        handler: H,
    ) -> Self {
        self.methods = self.methods.on(filter, Guarded { required, handler });
        self.served.push((method, required));
        self
    }

    /// Adds a handler for all other methods, where the router does not know which exist. It has no requirement, so it
    /// must reveal nothing else.
    pub fn otherwise<H: Handler<T, Shared>, T: 'static>(mut self, handler: H) -> Self {
        let required = RequiredPermission::Public;
        self.methods = self.methods.fallback(Guarded { required, handler });
        self
    }

    /// Returns the address in axum's notation.
    pub fn address(&self) -> &'static str {
        self.address
    }

    /// Returns the methods, without the `HEAD` of a `GET`, and the permission that each requires.
    pub fn served(&self) -> impl Iterator<Item = &(Method, RequiredPermission)> {
        self.served.iter()
    }

    /// Returns the handlers, each behind the check of its permission.
    pub fn methods(self) -> MethodRouter<Shared> {
        self.methods
    }
}
